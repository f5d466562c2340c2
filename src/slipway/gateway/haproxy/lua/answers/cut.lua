-- The last event of a stream that was cut, in its protocol, so that no client takes what came for the whole answer.

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

-- The event for a stream that ended so. One that the cut left half is ended first.
local function event(path, tail)
    local before = (tail == "" or tail:find("\r?\n\r?\n$")) and "" or "\n\n"
    return before .. (BY_PATH[path] or openai)(tail) .. "\n\n"
end

return {event = event}
