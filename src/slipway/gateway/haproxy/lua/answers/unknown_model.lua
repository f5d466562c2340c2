-- Responds to requests that no model serves: with the error in txn.refused if the model cannot be read; with status 404
-- if it does not exist, or its engine does not serve the path; with status 503 if it is refused, failed, or was not
-- ready in time. All but the first contain the model's name, and are the only errors with text from the user.
-- Loaded once in each thread. Keeps no state.

local nearest = require("nearest")
local reasons = require("reasons")
local refusals = require("refusals")

local MOST_CHARACTERS = 128

-- Returns a user's text for a JSON string: shortened, without invalid UTF-8, and escaped.
local function escape(text)
    if #text > MOST_CHARACTERS then text = text:sub(1, MOST_CHARACTERS) .. "..." end
    if not utf8.len(text) then text = text:gsub("[\x80-\xFF]", "?") end
    return (text:gsub('[%c"\\]', function(c) return ("\\u%04x"):format(c:byte()) end))
end

local function answer(txn, status, error)
    local reply = txn:reply{status = status}
    reply:add_header("content-type", "application/json")
    if status == 503 then reply:add_header("retry-after", "10") end
    reply:set_body(refusals.written(txn, status, error))
    txn:done(reply)
end

-- A reason is one word of letters, digits and _, so it needs no escaping.
local function not_ready(txn, before, reason)
    local detail = reason and ": " .. reason .. ". See the status of its resource." or "."
    answer(txn, 503, {message = "The model `" .. escape(txn:get_var("txn.model")) .. "` " .. before .. detail,
        type = "server_error", code = "model_not_ready", reason = reason or false})
end

local function not_found(txn, advice)
    answer(txn, 404, {message = "The model `" .. escape(txn:get_var("txn.model")) .. "` does not exist. " .. advice,
        type = "invalid_request_error", param = "model", code = "model_not_found"})
end

local LIST = "GET /v1/models lists the models."

local function hide_model(txn)
    not_found(txn, LIST)
end

local function unknown_model(txn)
    local model = txn:get_var("txn.model")
    -- If the model has a backend, it exists, but the request's label selector excludes it.
    local reason = not txn:get_var("txn.be") and reasons.of_id(model)
    if reason then return not_ready(txn, "is rejected", reason) end
    local suggestion = not txn:get_var("txn.be") and nearest.model(txn, model)
    not_found(txn, suggestion and "Did you mean `" .. suggestion .. "`?" or LIST)
end

local function unsupported_endpoint(txn)
    answer(txn, 404, {message = "The engine of the model `" .. escape(txn:get_var("txn.model")) .. "` does not support this path.",
        type = "invalid_request_error", code = "unsupported_endpoint"})
end

-- txn.hold is "failed" if waiting is useless, otherwise "timeout".
local function unready_model(txn)
    local reason = reasons.of_backend(txn:get_var("txn.be"))
    if txn:get_var("txn.hold") == "failed" then return not_ready(txn, "cannot start", reason) end
    not_ready(txn, "did not become ready in time", reason)
end

local function refuse(txn)
    refusals.answer(txn, txn:get_var("txn.refused") or "broken")
end

core.register_action("refuse", {"http-req"}, refuse)
core.register_action("hide_model", {"http-req"}, hide_model)
core.register_action("unknown_model", {"http-req"}, unknown_model)
core.register_action("unsupported_endpoint", {"http-req"}, unsupported_endpoint)
core.register_action("unready_model", {"http-req"}, unready_model)
