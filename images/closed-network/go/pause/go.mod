module slipway.inference/closed-network/pause

go 1.25.0
