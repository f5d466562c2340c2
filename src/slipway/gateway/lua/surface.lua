-- Answers requests whose model cannot be read, by the reason in txn.refused; and 404 for a model that is not known, naming
-- it: the one error body that holds text of the user.
-- Loaded once in each thread; keeps no state.

local refusals = require("refusals")

local SHOWN = 128

-- A user's text for the inside of a JSON string: cut, what is not UTF-8 replaced, the rest escaped.
local function escaped(text)
    if #text > SHOWN then text = text:sub(1, SHOWN) .. "..." end
    if not utf8.len(text) then text = text:gsub("[\x80-\xFF]", "?") end
    return (text:gsub('[%c"\\]', function(c) return ("\\u%04x"):format(c:byte()) end))
end

local function unknown_model(txn)
    local reply = txn:reply{status = 404}
    reply:add_header("content-type", "application/json")
    reply:set_body('{"error": {"message": "The model `' .. escaped(txn:get_var("txn.model"))
        .. '` does not exist.", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}}')
    txn:done(reply)
end

local function refuse(txn)
    refusals.answer(txn, txn:get_var("txn.refused") or "broken")
end

core.register_action("refuse", {"http-req"}, refuse)
core.register_action("unknown_model", {"http-req"}, unknown_model)
