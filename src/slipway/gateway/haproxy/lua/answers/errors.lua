-- The body of one of our errors, for rules that answer with it: lua.failure(REASON).
-- Loaded once in each thread; keeps no state.

local refusals = require("refusals")

core.register_fetches("failure", function(txn, reason)
    return refusals.body(txn, reason)
end)
