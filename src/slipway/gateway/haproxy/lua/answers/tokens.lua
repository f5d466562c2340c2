-- Counts the tokens of answers by backend and name of the API key, from the field `usage` that engines send at the end.
--
-- Rules of haproxy.cfg count complete small answers with a usual `usage`. This file counts the others: an action counts
-- other complete answers, and a filter of the public frontend counts streams and large answers. The filter only reads.
-- Any answer of an engine passes unchanged, except that a broken stream gets one more event (cut.lua). In each piece of
-- an answer, only `"usage":{...}` is read. The quotes would be escaped in a JSON string, so this is always a key. If
-- there are several such objects (running counts, or one that the model wrote), the largest number of each kind counts.
--
-- If an engine does not report a number, it is estimated, and also counted as estimated: an event of a stream is one
-- token, and CHARACTERS of the request are one token. llama.cpp sends `timings` at the end of every stream, even if the
-- request did not ask for usage.
--
-- For each call, HAProxy creates objects, which costs more than the work of this file. HAProxy looks up each function
-- of the filter's object by name, so the object only returns the functions that are currently needed (see `lookup`).
--
-- Sets txn.usage (input:cached:output:reasoning) and txn.tokens_estimated, for the log.
-- Loaded once in each thread, so that threads do not wait for each other. Each thread answers "show slipway tokens" for
-- itself. Arguments: bits of the paths that generate and of those that only read, numbers of responses and of messages.

local cut = require("cut")
local names = require("names")

local find, match, sub, lower = string.find, string.match, string.sub, string.lower

local CHARACTERS = 4    -- of a request for each estimated token
local MOST_DIGITS = 9   -- of a number; longer ones are ignored
local LONGEST = 8192    -- maximum characters of an object `usage`
local TAIL = 2048       -- characters of the last pieces that are kept until the end
local GENERATES, READS, RESPONSES, MESSAGES = ...
GENERATES, READS = math.tointeger(GENERATES), math.tointeger(READS)
local PATHS = {[math.tointeger(RESPONSES)] = "/v1/responses", [math.tointeger(MESSAGES)] = "/v1/messages"}
local ENDS = {"data: [DONE]", '"message_stop"', '"response.completed"', '"response.incomplete"', '"response.failed"'}
local LOGGED = {"input", "cached", "output", "reasoning"}
local COLUMNS = {"input", "cached", "output", "reasoning", "estimated_input", "estimated_output"}

local MOST_HOLDERS = 20000    -- maximum holders whose tokens are kept until the control process reads them

local totals = {}             -- backend -> key -> column -> tokens
local spent, spenders = {}, 0 -- holder of a token limit -> tokens since the control process read them

-- Returns the number of a key in an object; nil if it is not an integer of at most MOST_DIGITS.
local function number(object, key)
    local digits = match(object, '"' .. key .. '"%s*:%s*(%d+)%s*[,}]')
    return digits and #digits <= MOST_DIGITS and tonumber(digits) or nil
end

local function first_number(object, key, other)
    return number(object, key) or number(object, other)
end

-- Sets a count if it is larger than the previous one.
local function raise_count(counts, kind, tokens)
    if tokens and tokens > (counts[kind] or -1) then counts[kind] = tokens end
end

local function read_usage(counts, object)
    local output = first_number(object, "completion_tokens", "output_tokens")
    local cached, input = number(object, "cached_tokens"), number(object, "prompt_tokens")
    if not input then
        input = number(object, "input_tokens")
        -- In Anthropic's protocol, input_tokens does not include these.
        local read, written = number(object, "cache_read_input_tokens"), number(object, "cache_creation_input_tokens")
        if input and read then cached, input = read, input + read end
        if input and written then input = input + written end
    end
    local total = not input and number(object, "total_tokens")
    if total then input = math.max(total - (output or 0), 0) end
    raise_count(counts, "input", input)
    raise_count(counts, "cached", cached)
    raise_count(counts, "output", output)
    raise_count(counts, "reasoning", number(object, "reasoning_tokens"))
end

local function read_timings(counts, text)
    local object = match(text, '"timings"%s*:%s*(%b{})')
    local read = object and number(object, "prompt_n")
    if not read then return end
    local cached = number(object, "cache_n")
    raise_count(counts, "input", read + (cached or 0))
    raise_count(counts, "cached", cached)
    raise_count(counts, "output", number(object, "predicted_n"))
end

-- Returns the number of events that begin in a piece. JSON contains no raw line breaks.
local function count_events(piece)
    local count, at = find(piece, "^data:") and 1 or 0, find(piece, "\ndata:", 1, true)
    while at do
        count = count + 1
        at = find(piece, "\ndata:", at + 6, true)
    end
    return count
end

-- Reads every complete object `usage` of a text. Returns the end of the text if an object may begin there, otherwise
-- nil.
local function scan_usage(counts, text)
    local at = find(text, '"usage"', 1, true)
    while at do
        local object, after = match(text, "^%s*:%s*(%b{})()", at + 7)
        if object then
            read_usage(counts, object)
        elseif find(text, "^%s*:?%s*$", at + 7) or find(text, "^%s*:%s*{", at + 7) then
            return #text - at < LONGEST and sub(text, at) or nil
        end
        at = find(text, '"usage"', after or at + 7, true)
    end
    return match(text, '"u?s?a?g?e?$', -6)
end

local function has_end(text)
    for _, mark in ipairs(ENDS) do
        if find(text, mark, 1, true) then return true end
    end
    return false
end

-- Whether there is a token limit (format of limits.map). Without it, tokens are not stored, because they would count
-- later, when a limit is set.
local function has_tokens(limits)
    return limits and (find(limits, "^%d*:%d") or find(limits, ":%d+$"))
end

local function add_spent(holder, tokens)
    if not spent[holder] then
        if spenders >= MOST_HOLDERS then return end
        spenders = spenders + 1
    end
    spent[holder] = (spent[holder] or 0) + tokens
end

-- Adds the counts of an answer, without the part that was added before.
local function add_counts(self, txn, counts)
    local keys = totals[self.backend] or {}
    totals[self.backend] = keys
    local sums = keys[self.key] or {}
    keys[self.key] = sums
    local before = (self.added.input or 0) + (self.added.output or 0)
    if self.holder then add_spent(self.holder, (counts.input or 0) + (counts.output or 0) - before) end
    for _, column in ipairs(COLUMNS) do
        sums[column] = (sums[column] or 0) + (counts[column] or 0) - (self.added[column] or 0)
        self.added[column] = counts[column]
    end
    local logged = {}
    for index, kind in ipairs(LOGGED) do logged[index] = counts[kind] or "" end
    txn:set_var("txn.usage", table.concat(logged, ":"))
    txn:set_var("txn.tokens_estimated", (counts.estimated_input or counts.estimated_output) ~= nil)
end

local function set_estimate(counts, kind, tokens)
    counts[kind] = math.max(counts[kind] or 0, tokens)
    counts["estimated_" .. kind] = counts[kind]
end

local function is_streamed(txn)
    return find(lower(txn.f:res_fhdr("content-type") or ""), "text/event-stream", 1, true) == 1
end

-- Starts the counts of an answer. The backend may differ from the first one if another target of the route answered.
local function begin_answer(self, txn)
    local kind = txn:get_var("txn.kind")
    self.generates, self.path = kind & GENERATES ~= 0, PATHS[kind]
    self.backend, self.key = txn:get_var("txn.be"), txn:get_var("txn.key") or "-"
    self.holder = has_tokens(txn:get_var("txn.limits")) and (txn:get_var("txn.holder") or self.key)
    self.size, self.added = txn:get_var("txn.size") or 0, {}
end

-- Appends the last event to a stream whose engine disconnected. If the client disconnected, there is no one to receive
-- it.
local function finish_stream(self, message)
    local tail = (self.before or "") .. (self.last or "")
    if message:eom() or has_end(tail) or not self.request:may_recv() then return end
    self.open = false
    message:append(cut.event(self.path, tail))
    message:set_eom()
end

-- Counts the reported tokens at the end of an answer, and estimates the others.
local function finish_counts(self, txn, tail)
    local counts = self.counts
    if not counts.output then read_timings(counts, tail) end
    if not counts.input then set_estimate(counts, "input", self.size // CHARACTERS) end
    -- In a broken stream, a running count is not the engine's final number.
    if self.generates and (not counts.output or self.streamed and not has_end(tail)) then
        set_estimate(counts, "output", self.events or 0)
    end
    add_counts(self, txn, counts)
end

-- Whether an engine processed a request of which nothing was counted, because the client disconnected before the
-- answer, or an answer was not complete in time. State `C`: the client ended the request, before headers (`H`) or, if a
-- 100 was sent, before data (`D`).
local function is_uncounted(txn)
    local kind = txn:get_var("txn.kind")
    if not kind or kind & (GENERATES | READS) == 0 or not txn:get_var("txn.be") then return false end
    if txn:get_var("txn.hold") == "moved" then return false end
    if txn:get_var("txn.length") then return not txn:get_var("txn.usage") end
    return find(txn.f:txn_sess_term_state(), "^C[HD]") ~= nil
end

-- Called at the end of each direction, also if client or engine disconnected. Not called if the answer's end was read
-- before.
local function end_analyze(self, txn, channel)
    if not channel:is_resp() then return filter.CONTINUE end
    self.over = true
    if not self.counts then
        -- Only the engine's input is known.
        if not is_uncounted(txn) then return filter.CONTINUE end
        begin_answer(self, txn)
        self.counts = {}
    end
    finish_counts(self, txn, (self.before or "") .. (self.last or ""))
    return filter.CONTINUE
end

local function read_piece(self, txn, piece)
    local counts = self.counts
    if self.streamed then self.events = self.events + count_events(piece) end
    self.rest = scan_usage(counts, self.rest and self.rest .. piece or piece)
    self.before, self.last = self.last, #piece > TAIL and sub(piece, -TAIL) or piece
    local is_counted = counts.input and (counts.output or not self.generates)
    if is_counted and (not self.streamed or has_end(piece)) then
        add_counts(self, txn, counts)
        self.over = true
    end
end

-- Called with each piece of an answer, and once without a piece at the end. Returns nothing, so the whole piece passes.
local function http_payload(self, txn, message)
    local piece = message:body()
    if piece and piece ~= "" then read_piece(self, txn, piece) end
    if self.open and not self.channel:may_recv() then finish_stream(self, message) end
end

local following = false       -- whether the filter must read the next answer that this thread passes to it

-- Called for the headers of an answer, after its rules.
local function http_headers(self, txn, message)
    if not message.channel:is_resp() or not txn:get_var("txn.followed") then return filter.CONTINUE end
    following = false
    begin_answer(self, txn)
    self.streamed = is_streamed(txn)
    -- Nothing can be appended to an answer with an announced length.
    self.open = self.streamed and self.generates and not txn.f:res_fhdr("content-length")
    self.request, self.channel = txn.req, message.channel
    self.counts, self.events = {}, 0
    filter.register_data_filter(self, message.channel)
    return filter.CONTINUE
end

-- Rules call this immediately before HAProxy passes the headers of the same answer to the filter, without a pause. If
-- the answer fails in between, the headers of another answer are checked in vain.
local function follow_answer(txn)
    txn:set_var("txn.followed", true)
    following = true
end

local function count_answer(txn)
    local text, self = txn.f:res_body(), {counts = {}}
    begin_answer(self, txn)
    self.streamed = is_streamed(txn)
    if self.streamed then self.events = count_events(text) end
    scan_usage(self.counts, text)
    finish_counts(self, txn, text)
end

-- Returns the filter's function with this name. HAProxy passes two sets of headers; after the first, there is no answer
-- yet.
local function lookup(self, name)
    if name == "http_headers" then
        self.headers = self.headers + 1
        return following and self.headers > 1 and http_headers or nil
    elseif name == "http_payload" then
        return self.counts and http_payload
    elseif name == "end_analyze" then
        return not self.over and (self.counts or self.headers == 1) and end_analyze or nil
    end
    return nil
end

local LOOKUP = {__index = lookup}
-- HAProxy only calls functions that the class has, but uses those of the object.
local Tokens = {
    flags = filter.FLT_CFG_FL_HTX, http_headers = http_headers, http_payload = http_payload, end_analyze = end_analyze,
}

function Tokens:new()
    return setmetatable({headers = 0}, LOOKUP)
end

core.register_filter("tokens", Tokens, function(class) return class end)
core.register_action("follow_answer", {"http-res"}, follow_answer)
core.register_action("count_answer", {"http-res"}, count_answer)

-- "show slipway tokens" on the command socket of a thread: a line with backend, key and COLUMNS for each pair.
local function show(applet)
    for backend, keys in pairs(totals) do
        for key, sums in pairs(keys) do
            local line = {backend, key}
            for _, column in ipairs(COLUMNS) do line[#line + 1] = ("%d"):format(sums[column]) end
            applet:send(table.concat(line, " ") .. "\n")
        end
    end
end

core.register_cli({"show", "slipway", "tokens"}, "show slipway tokens : tokens that this thread counted", show)

-- "show slipway spent": a line "holder tokens" for each holder of limits that used tokens since the last call.
local function show_spent(applet)
    local rows = spent
    spent, spenders = {}, 0
    for holder, tokens in pairs(rows) do applet:send(("%s %d\n"):format(names.encode(holder), tokens)) end
end

core.register_cli({"show", "slipway", "spent"}, "show slipway spent : tokens that count against limits", show_spent)
