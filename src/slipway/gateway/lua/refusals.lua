-- Answers a request with one of our errors, by its reason. The texts are those of errors.py, which writes them to the
-- module "failures".

local failures = require("failures")

local refusals = {}

function refusals.answer(txn, reason)
    local failure = failures[reason]
    local reply = txn:reply{status = failure.status}
    reply:add_header("content-type", "application/json")
    if failure.retry_after > 0 then reply:add_header("retry-after", tostring(failure.retry_after)) end
    reply:set_body(failure.body)
    txn:done(reply)
end

return refusals
