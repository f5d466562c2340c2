-- Writes our errors, in OpenAI's shape or, on paths of Anthropic's protocol, in that one's. The texts are those of errors.py,
-- which writes them to the module "failures".

local failures = require("failures")

local refusals = {}

local function is_anthropic(txn)
    local kind = txn:get_var("txn.kind")
    return kind ~= nil and kind < failures.first_openai
end

-- The request's id at the end of an error of Anthropic's. It holds nothing that JSON would have to escape.
local function close_error(txn, text)
    local id = txn:get_var("txn.id")
    return text .. (id and '"' .. id .. '"}' or "null}")
end

local function quote(value)
    return value and '"' .. value .. '"' or "null"
end

-- The body of one of our errors, by its reason.
function refusals.body(txn, reason)
    local failure = failures.by_reason[reason]
    return is_anthropic(txn) and close_error(txn, failure.anthropic) or failure.body
end

-- The body of an error that names the model. `error`: message, type, param, code and reason, all of them escaped; a reason
-- of false is shown as null.
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

-- Answers a request with one of our errors, by its reason. `path`: one of ours that the client may have meant.
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

-- Refuses a request beyond a limit of its key or subject. `limit`: its name in errors.py, `number`: the limit itself,
-- `seconds`: until it is worth trying again.
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
