-- Writes the gateway's errors in OpenAI's format, or in Anthropic's format on paths of its protocol. errors.py has the
-- texts, and writes them to the module "failures".

local failures = require("failures")

local refusals = {}

local function is_anthropic(txn)
    local kind = txn:get_var("txn.kind")
    return kind ~= nil and kind < failures.first_openai
end

-- Completes an error in Anthropic's format with the request's ID, which contains no characters that JSON must escape.
local function close_error(txn, text)
    local id = txn:get_var("txn.id")
    return text .. (id and '"' .. id .. '"}' or "null}")
end

local function quote(value)
    return value and '"' .. value .. '"' or "null"
end

-- Returns the body of an error, by its reason.
function refusals.body(txn, reason)
    local failure = failures.by_reason[reason]
    return is_anthropic(txn) and close_error(txn, failure.anthropic) or failure.body
end

-- Returns the body of an error. `error`: escaped message, type, param, code and reason. A reason of false becomes null.
function refusals.written(txn, status, error)
    local fields = '"code": ' .. quote(error.code)
    if error.reason ~= nil then fields = fields .. ', "reason": ' .. quote(error.reason) end
    if is_anthropic(txn) then
        local type = failures.anthropic_types[status] or "api_error"
        return close_error(txn, '{"type": "error", "error": {"type": "' .. type .. '", "message": "' .. error.message .. '", '
            .. fields .. '}, "request_id": ')
    end
    return '{"error": {"message": "' .. error.message .. '", "type": "' .. error.type .. '", "param": '
        .. quote(error.param) .. ", " .. fields .. "}}"
end

-- Responds with an error, by its reason. `path`: a similar served path to suggest, or nil.
function refusals.answer(txn, reason, path)
    local failure = failures.by_reason[reason]
    local reply = txn:reply{status = failure.status}
    reply:add_header("content-type", "application/json")
    if failure.retry_after > 0 then reply:add_header("retry-after", tostring(failure.retry_after)) end
    local body = refusals.body(txn, reason)
    if path then body = body:gsub(failures.list, function() return "Did you mean " .. path .. "?" end) end
    reply:set_body(body)
    txn:done(reply)
end

-- Refuses a request above a limit of its key or subject. `limit`: its name in errors.py; `number`: its value;
-- `seconds`: time until a retry may succeed.
function refusals.limited(txn, limit, number, seconds)
    local text = failures.limits[limit]
    local holder = txn:get_var("txn.holder") or ""
    local subject = holder:find("^jwt:") and "The subject of this token" or "This API key"
    local message = text.message:gsub("@(%u+)@", {WHO = subject, LIMIT = ("%d"):format(number), SECONDS = ("%d"):format(seconds)})
    local reply = txn:reply{status = text.status}
    reply:add_header("content-type", "application/json")
    reply:add_header("retry-after", ("%d"):format(seconds))
    reply:set_body(refusals.written(txn, text.status, {message = message, type = text.type, code = text.code}))
    txn:done(reply)
end

return refusals
