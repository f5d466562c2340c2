-- Registers the fetch lua.failure(REASON), which returns the body of one of the gateway's errors.
-- Loaded once in each thread. Keeps no state.

local refusals = require("refusals")

core.register_fetches("failure", function(txn, reason)
    return refusals.body(txn, reason)
end)
