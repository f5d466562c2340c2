-- The last event of a broken stream, in the format of its protocol, so that clients do not mistake the received part
-- for the complete answer.

local MESSAGE = "The model server disconnected during its response."

local function openai()
    return 'data: {"error": {"message": "' .. MESSAGE .. '", "type": "server_error", "param": null, "code": "answer_cut"}}'
end

local function responses(tail)
    local last = tail:match('.*"sequence_number"%s*:%s*(%d+)')
    local number = last and #last < 10 and tonumber(last) + 1 or 0
    return 'event: error\ndata: {"type": "error", "code": "answer_cut", "message": "' .. MESSAGE
        .. ('", "param": null, "sequence_number": %d}'):format(number)
end

local function anthropic()
    return 'event: error\ndata: {"type": "error", "error": {"type": "api_error", "message": "' .. MESSAGE .. '"}}'
end

local BY_PATH = {["/v1/responses"] = responses, ["/v1/messages"] = anthropic}

-- Returns the event for a stream that ended with `tail`. If the last event is incomplete, it is terminated first.
local function event(path, tail)
    local before = (tail == "" or tail:find("\r?\n\r?\n$")) and "" or "\n\n"
    return before .. (BY_PATH[path] or openai)(tail) .. "\n\n"
end

return {event = event}
