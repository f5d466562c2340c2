-- Chooses the endpoint of a model with the strategy PrefixHash: requests whose prompts begin alike meet the same engine,
-- whose cache has that beginning, unless it has too much to do.
--
--   opening   the first characters of the first user message (chat/completions), of the prompt (completions) or of the
--             input (responses), decoded: however a client writes it, equal text is equal
--   ranking   the hash of the opening gives each endpoint a score (rendezvous hashing): the highest is first choice. It
--             depends on addresses alone, so that every gateway ranks alike, whatever it saw before
--   bound     an endpoint with more requests under way than its percentage of the mean is passed over for the next
--
-- Three converters, as these cost a third of what a fetch or an action does; the first leaves what it read to the others:
--
--   ring      of what the control process says of the model: backend, percent of the mean that one endpoint may have,
--             characters to hash, endpoints
--   opening   of the body or its begin (argument: the field with the prompt): the text, or "" where there is none, or more
--             of the body is needed
--   endpoint  of the text's hash: an endpoint's name, or "" where none takes it: then HAProxy takes the least loaded
--
-- Loaded once in each thread; keeps rankings that can be made again. The body was read by the guard before: what is broken
-- in it only ends the search.

local json = require("json")
local skip, unescape = json.skip, json.unescape
local byte, find, gsub, match, sub = string.byte, string.find, string.gsub, string.match, string.sub
local concat = table.concat

local MOST_STEPS = 20000             -- steps after which a text without an opening is given up: a few milliseconds
local PARTS = 4096             -- parts into which hashes are sorted, so that first choices can be kept
-- A quote within a string is marked until the string's end is found: no string holds a plain NUL.
local ESCAPED = setmetatable({['"'] = "\0"}, {__index = json.PLAIN_ESCAPE})
local PAIR_ESCAPE = "^\\u[dD][89abAB]%x%x\\u[dD][c-fC-F]%x%x"
local MESSAGES = 1000          -- messages after which the search for one from the user is given up
local LEAST_CHOICES = 8            -- choices, at least, for which the requests of all endpoints are counted once
local EMPTY_HASH = 0xEF46DB3751D8E999 -- the hash xxh64 of no text
local MULTIPLIER = 0xBF58476D1CE4E5B9 -- of splitmix64, as the others
local QUOTE, BACKSLASH, OPEN, CLOSE, COMMA, COLON = 0x22, 0x5C, 0x7B, 0x7D, 0x2C, 0x3A
local OPEN_LIST, CLOSE_LIST = 0x5B, 0x5D

-- The index behind the string that opens at `at`.
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

-- The index behind the value that begins at `at`.
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

-- The index of what follows the value at `at` in its list or object; nil at the end.
local function next_index(text, at, work)
    at = value_end(text, at, work)
    at = at and skip(text, at)
    if not at or byte(text, at) ~= COMMA then return nil end
    return skip(text, at + 1)
end

-- The index of the value of a member of the object at `at`.
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

-- How many characters begin in a text, which may be no UTF-8.
local function count_characters(text)
    local _, continued = gsub(text, "[\128-\191]", "")
    return #text - continued
end

-- The first `limit` characters of the string at `at`, decoded, and their number: one escape after another.
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
    -- The last character may go on.
    return concat(parts) .. match(text, "^[\128-\191]*", at), limit
end

-- The same; most texts are decoded in a few steps.
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

-- The first characters of a content: a string, or a list of parts whose texts are joined.
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
        if not at or at > #text then return "" end -- nobody knows what else there is
        if byte(text, at) ~= COMMA then return joined end
        at = skip(text, at + 1)
    end
    return joined
end

-- The same of the first message in the list at `at` that comes from the user.
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

-- The index of the content of the first message from the user, where the text is written as most clients write it: role
-- before content. Outside of strings the word "role" cannot stand without being a key or a whole string.
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

-- A number of 64 bits that depends on all of a name.
local function hash_name(name)
    local mixed = #name
    for at = 1, #name do
        mixed = (mixed ~ byte(name, at)) * MULTIPLIER
        mixed = mixed ~ (mixed >> 29)
    end
    return mixed
end

-- The score of an endpoint for a part: all bits of both count.
local function score(seed, part)
    local mixed = (seed ~ (part * 0x9E3779B97F4A7C15)) * MULTIPLIER
    mixed = (mixed ~ (mixed >> 31)) * 0x94D049BB133111EB
    return mixed ~ (mixed >> 29)
end

local rings = {}               -- what ring texts say, first choices, servers
local texts = {}               -- backend -> its newest ring text
local current                  -- what the converter `ring` read for those that follow

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

-- All endpoints, the best for this part first.
local function ranking(ring, part)
    local order, scores = {}, {}
    for number, seed in ipairs(ring.seeds) do
        order[number], scores[number] = number, score(seed, part)
    end
    table.sort(order, function(one, other) return math.ult(scores[other], scores[one]) end)
    return order
end

-- Requests under way at an endpoint. Objects of servers are kept, as making one costs as much as all the rest.
local function load_of(ring, number)
    local server = ring.servers[number]
    local load = server and server:get_cur_sess()
    if not load then -- not seen yet, or made anew meanwhile
        local backend = core.backends[ring.backend]
        server = backend and backend.servers[ring.names[number]]
        ring.servers[number] = server
        load = server and server:get_cur_sess() or math.maxinteger
    end
    return load
end

-- Counts the requests under way at all endpoints.
local function count_all(ring)
    local total = 0
    for number = 1, #ring.names do
        local load = load_of(ring, number)
        if load < math.maxinteger then total = total + load end
    end
    ring.total, ring.choices_left = total, math.max(LEAST_CHOICES, #ring.names)
end

-- Whether an endpoint with so many requests may get one more. A second one always: where there is little to do, a warm
-- cache is worth more than an idle engine, and the request before may just be ending.
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
