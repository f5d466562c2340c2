-- Selects the endpoint of a model with the strategy PrefixHash. Requests whose prompts begin with the same text go to
-- the same engine, which has that text in its cache, unless it is overloaded.
--
--   opening   the first characters of the first user message (chat/completions), of the prompt (completions) or of the
--             input (responses), decoded, so that equal texts are equal in any JSON encoding
--   ranking   the hash of the opening gives each endpoint a score (rendezvous hashing), and the highest is the first
--             choice. It only depends on addresses, so every gateway has the same ranking
--   bound     an endpoint with more requests in flight than its percentage of the mean is skipped for the next one
--
-- There are three converters, because a converter costs a third of a fetch or an action. The first stores its result
-- for the others:
--
--   ring      argument: the control process's entry for the model, with backend, maximum percentage of the mean,
--             characters to hash, endpoints
--   opening   arguments: the body or its beginning, and the field of the prompt. Returns the text, or "" if there is
--             none, or more of the body is needed
--   endpoint  argument: the text's hash. Returns an endpoint's name, or "" if all are overloaded. HAProxy then selects
--             the least loaded one
--
-- Loaded once in each thread. Caches rankings. The guard has read the body before, so broken JSON only ends the search.

local json = require("json")
local skip, unescape = json.skip, json.unescape
local byte, find, gsub, match, sub = string.byte, string.find, string.gsub, string.match, string.sub
local concat = table.concat

local MOST_STEPS = 20000   -- steps after which the search for an opening ends: a few milliseconds
local PARTS = 4096         -- parts into which hashes are divided, so that first choices can be cached
-- An escaped quote becomes a NUL until the string's end is found, because strings contain no plain NUL.
local ESCAPED = setmetatable({['"'] = "\0"}, {__index = json.PLAIN_ESCAPE})
local PAIR_ESCAPE = "^\\u[dD][89abAB]%x%x\\u[dD][c-fC-F]%x%x"
local MESSAGES = 1000     -- messages after which the search for a user's message ends
local LEAST_CHOICES = 8   -- minimum number of choices between two counts of all endpoints' requests
local EMPTY_HASH = 0xEF46DB3751D8E999 -- the hash xxh64 of the empty text
local MULTIPLIER = 0xBF58476D1CE4E5B9 -- from splitmix64, like the others
local QUOTE, BACKSLASH, OPEN, CLOSE, COMMA, COLON = 0x22, 0x5C, 0x7B, 0x7D, 0x2C, 0x3A
local OPEN_LIST, CLOSE_LIST = 0x5B, 0x5D

-- Returns the index after the string that opens at `at`.
local function string_end(text, at, work)
    local from = at + 1
    while work.remaining > 0 do
        local quote = find(text, '"', from, true)
        if not quote then return nil end
        local before = quote - 1
        while byte(text, before) == BACKSLASH do before = before - 1 end
        work.remaining = work.remaining - (quote - before)
        if (quote - before) % 2 == 1 then return quote + 1 end
        from = quote + 1
    end
    return nil
end

-- Returns the index after the value that begins at `at`.
local function value_end(text, at, work)
    local code = byte(text, at)
    if code == QUOTE then return string_end(text, at, work) end
    if code ~= OPEN and code ~= OPEN_LIST then return find(text, "[,%]}]", at) end
    local depth = 0
    while work.remaining > 0 do
        work.remaining = work.remaining - 1
        at = find(text, '["%[%]{}]', at)
        if not at then return nil end
        code = byte(text, at)
        if code == QUOTE then
            at = string_end(text, at, work)
            if not at then return nil end
        else
            depth = depth + ((code == OPEN or code == OPEN_LIST) and 1 or -1)
            at = at + 1
            if depth == 0 then return at end
        end
    end
    return nil
end

-- Returns the index of the next value or key after the value at `at`; nil at the end of the list or object.
local function next_index(text, at, work)
    at = value_end(text, at, work)
    at = at and skip(text, at)
    if not at or byte(text, at) ~= COMMA then return nil end
    return skip(text, at + 1)
end

-- Returns the index of the value of a member of the object at `at`.
local function member(text, at, name, work)
    at = skip(text, at + 1)
    while at and byte(text, at) == QUOTE do
        local after = string_end(text, at, work)
        if not after then return nil end
        local key = sub(text, at + 1, after - 2)
        if find(key, "\\", 1, true) then key = unescape(key) end
        at = skip(text, after)
        if byte(text, at) ~= COLON then return nil end
        at = skip(text, at + 1)
        if key == name then return at end
        at = next_index(text, at, work)
    end
    return nil
end

-- Returns the number of characters in a text, which may be invalid UTF-8.
local function count_characters(text)
    local _, continued = gsub(text, "[\128-\191]", "")
    return #text - continued
end

-- Returns the first `limit` characters of the string at `at`, decoded, and their number. Decodes each escape
-- separately.
local function slow_head(text, at, limit)
    local parts, remaining = {}, limit
    at = at + 1
    while remaining > 0 do
        local piece = sub(text, at, at + remaining - 1)
        local stop = find(piece, '["\\]')
        if stop then piece = sub(piece, 1, stop - 1) end
        parts[#parts + 1] = piece
        remaining = remaining - count_characters(piece)
        at = at + #piece
        if stop then
            if byte(text, at) == QUOTE then return concat(parts), limit - remaining end
            local escape = match(text, PAIR_ESCAPE, at) or match(text, "^\\u%x%x%x%x", at) or sub(text, at, at + 1)
            parts[#parts + 1] = unescape(escape)
            remaining = remaining - 1
            at = at + #escape
        elseif piece == "" then
            return "", 0 -- the string has no end
        end
    end
    -- Include the rest of the last character.
    return concat(parts) .. match(text, "^[\128-\191]*", at), limit
end

-- As slow_head, but decodes most texts in a few steps.
local function head(text, at, limit)
    local piece = sub(text, at + 1, at + limit + limit // 2)
    local marked = 0
    if find(piece, "\\", 1, true) then
        if find(piece, "\\u", 1, true) then return slow_head(text, at, limit) end
        piece, marked = gsub(piece, "\\(.)", ESCAPED)
    end
    local quote = find(piece, '"', 1, true)
    if quote then piece = sub(piece, 1, quote - 1) end
    local length = utf8.len(piece, 1, -1, true) or count_characters(piece)
    if length > limit then
        piece, length = sub(piece, 1, utf8.offset(piece, limit + 1) - 1), limit
    elseif not quote then
        return slow_head(text, at, limit) -- the piece was too short
    end
    if marked > 0 and find(piece, "\0", 1, true) then piece = gsub(piece, "%z", '"') end
    return piece, length
end

-- Returns the first characters of a content, which is a string, or a list of parts whose texts are joined.
local function content_head(text, at, limit, work)
    if byte(text, at) == QUOTE then return (head(text, at, limit)) end
    if byte(text, at) ~= OPEN_LIST then return "" end
    local joined = ""
    at = skip(text, at + 1)
    while limit > 0 do
        local part = byte(text, at) == OPEN and member(text, at, "text", work)
        if part and byte(text, part) == QUOTE then
            local piece, length = head(text, part, limit)
            joined, limit = joined .. piece, limit - length
        end
        at = value_end(text, at, work)
        at = at and skip(text, at)
        if not at or at > #text then return "" end -- the rest of the list is unknown
        if byte(text, at) ~= COMMA then return joined end
        at = skip(text, at + 1)
    end
    return joined
end

-- Returns the first characters of the first user message in the list at `at`.
local function first_user_head(text, at, limit, work)
    at = skip(text, at + 1)
    while at and byte(text, at) == OPEN do
        local role = member(text, at, "role", work)
        if role and sub(text, role, role + 5) == '"user"' then
            local content = member(text, at, "content", work)
            return content and content_head(text, content, limit, work) or ""
        end
        at = next_index(text, at, work)
    end
    return ""
end

-- Returns the index of the content of the first user message if all messages have the role before the content, as most
-- clients write them. Quotes in strings are escaped, so "role" is always a key or a complete string.
local function usual_content(text, at)
    for _ = 1, MESSAGES do
        local _, key_end = find(text, '"role"', at, true)
        if not key_end then return nil end
        local role, content = match(text, '^[ \t\r\n]*:[ \t\r\n]*"(%l+)"[ \t\r\n]*,[ \t\r\n]*"content"[ \t\r\n]*:[ \t\r\n]*()', key_end + 1)
        if not role then return nil end
        if role == "user" then return content end
        at = content
    end
    return nil
end

local function opening(text, field, limit)
    local work = {remaining = MOST_STEPS}
    local _, key_end = find(text, '"' .. field .. '"', 1, true)
    local at = key_end and match(text, "^[ \t\r\n]*:[ \t\r\n]*()", key_end + 1) or member(text, skip(text, 1), field, work)
    local code = at and byte(text, at)
    if code == QUOTE and field ~= "messages" then return (head(text, at, limit)) end
    if code ~= OPEN_LIST then return "" end
    if field ~= "prompt" then
        local content = usual_content(text, at)
        if content then return content_head(text, content, limit, work) end
        return first_user_head(text, at, limit, work)
    end
    at = skip(text, at + 1)
    return byte(text, at) == QUOTE and (head(text, at, limit)) or ""
end

-- Returns a number of 64 bits that depends on every character of a name.
local function hash_name(name)
    local mixed = #name
    for at = 1, #name do
        mixed = (mixed ~ byte(name, at)) * MULTIPLIER
        mixed = mixed ~ (mixed >> 29)
    end
    return mixed
end

-- Returns the score of an endpoint for a part. It depends on all bits of both.
local function score(seed, part)
    local mixed = (seed ~ (part * 0x9E3779B97F4A7C15)) * MULTIPLIER
    mixed = (mixed ~ (mixed >> 31)) * 0x94D049BB133111EB
    return mixed ~ (mixed >> 29)
end

local rings = {}   -- ring text -> parsed ring, first choices, servers
local texts = {}   -- backend -> its latest ring text
local current      -- the ring of the converter `ring`, for the others

local function read_ring(text)
    local backend, percent, characters, names = match(text, "^([^,]+),(%d+),(%d+),(.+)$")
    local ring = {backend = backend, characters = tonumber(characters), names = {}, seeds = {}, first = {}, servers = {}}
    ring.total, ring.choices_left = 0, 0
    for name in string.gmatch(names, "[^,]+") do
        ring.names[#ring.names + 1] = name
        ring.seeds[#ring.seeds + 1] = hash_name(name)
    end
    ring.share = tonumber(percent) / (100 * #ring.names)
    if texts[backend] then rings[texts[backend]] = nil end
    rings[text], texts[backend] = ring, text
    return ring
end

local function first_choice(ring, part)
    local best, highest = 1, score(ring.seeds[1], part)
    for number = 2, #ring.seeds do
        local candidate = score(ring.seeds[number], part)
        if math.ult(highest, candidate) then best, highest = number, candidate end
    end
    ring.first[part] = best
    return best
end

-- Returns all endpoints, the best for this part first.
local function ranking(ring, part)
    local order, scores = {}, {}
    for number, seed in ipairs(ring.seeds) do
        order[number], scores[number] = number, score(seed, part)
    end
    table.sort(order, function(one, other) return math.ult(scores[other], scores[one]) end)
    return order
end

-- Returns the requests in flight at an endpoint. Objects of servers are cached, because creating one costs as much as
-- all the rest.
local function load_of(ring, number)
    local server = ring.servers[number]
    local load = server and server:get_cur_sess()
    if not load then -- not cached yet, or the server was recreated
        local backend = core.backends[ring.backend]
        server = backend and backend.servers[ring.names[number]]
        ring.servers[number] = server
        load = server and server:get_cur_sess() or math.maxinteger
    end
    return load
end

-- Counts the requests in flight at all endpoints.
local function count_all(ring)
    local total = 0
    for number = 1, #ring.names do
        local load = load_of(ring, number)
        if load < math.maxinteger then total = total + load end
    end
    ring.total, ring.choices_left = total, math.max(LEAST_CHOICES, #ring.names)
end

-- Whether an endpoint with `load` requests may get another one. A second request is always allowed: with little load, a
-- warm cache is worth more than an idle engine, and the first request may be ending.
local function has_capacity(ring, load)
    return load <= 1 or load <= (ring.total + 1) * ring.share
end

local function choose(hashed)
    hashed = tonumber(hashed)
    if hashed == EMPTY_HASH then return "" end
    local ring, part = current, hashed & (PARTS - 1)
    ring.choices_left = ring.choices_left - 1
    if ring.choices_left < 0 then count_all(ring) end
    local first = ring.first[part] or first_choice(ring, part)
    if has_capacity(ring, load_of(ring, first)) then return ring.names[first] end
    count_all(ring)
    for _, number in ipairs(ranking(ring, part)) do
        if has_capacity(ring, load_of(ring, number)) then return ring.names[number] end
    end
    return ""
end

local function ring(text)
    current = rings[text] or read_ring(text)
    return ""
end

local function opening_of(body, field)
    return opening(body, field, current.characters)
end

core.register_converters("ring", ring)
core.register_converters("opening", opening_of)
core.register_converters("endpoint", choose)
