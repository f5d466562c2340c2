module slipway.example/bench

go 1.24
