-- Chooses the endpoint of a model with the strategy PrefixHash: requests whose prompts begin alike meet the same engine,
-- whose cache has that beginning, unless it has too much to do.
--
--   opening   the first characters of the first user message (chat/completions), of the prompt (completions) or of the
--             input (responses), decoded: however a client writes it, equal text is equal
--   ranking   the hash of the opening gives each endpoint a score (rendezvous hashing): the highest is first choice. It
--             depends on addresses alone, so that every gateway ranks alike, whatever it saw before
--   bound     an endpoint with more requests under way than its share of the mean is passed over for the next
--
-- The variable txn.ring holds what the control process says of the model: percent of the mean that one endpoint may have,
-- characters to hash, endpoints. The fetch gives an endpoint's name, or "" where there is no opening: then HAProxy takes
-- the least loaded.
--
-- Loaded once in each thread; keeps rankings that can be made again. The body was read by the guard before: what is broken
-- in it only ends the search.

local json = require("json")
local skip, unescape = json.skip, json.unescape
local byte, find, gmatch, sub = string.byte, string.find, string.gmatch, string.sub

local WORK = 20000            -- steps after which a text without an opening is given up: a few milliseconds
local PARTS = 4096            -- parts into which hashes are sorted, so that first choices can be kept
local BYTES_PER_CHARACTER = 12 -- at most: two escapes of six
local FIELDS = {["/v1/chat/completions"] = "messages", ["/v1/completions"] = "prompt", ["/v1/responses"] = "input"}
local QUOTE, BACKSLASH, OPEN, CLOSE, COMMA, COLON = 0x22, 0x5C, 0x7B, 0x7D, 0x2C, 0x3A
local OPEN_LIST, CLOSE_LIST = 0x5B, 0x5D

-- The index behind the string that opens at `at`.
local function string_end(text, at, work)
    local from = at + 1
    while work.left > 0 do
        work.left = work.left - 1
        local quote = find(text, '"', from, true)
        if not quote then return nil end
        local before = quote - 1
        while byte(text, before) == BACKSLASH do before = before - 1 end
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
    while work.left > 0 do
        work.left = work.left - 1
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
local function next_one(text, at, work)
    at = value_end(text, at, work)
    at = at and skip(text, at)
    if not at or byte(text, at) ~= COMMA then return nil end
    return skip(text, at + 1)
end

-- The index of the value of a member of the object at `at`.
local function member(text, at, wanted, work)
    at = skip(text, at + 1)
    while at and byte(text, at) == QUOTE do
        local after = string_end(text, at, work)
        if not after then return nil end
        local key = sub(text, at + 1, after - 2)
        if find(key, "\\", 1, true) then key = unescape(key) end
        at = skip(text, after)
        if byte(text, at) ~= COLON then return nil end
        at = skip(text, at + 1)
        if key == wanted then return at end
        at = next_one(text, at, work)
    end
    return nil
end

-- The first `limit` characters of the string at `at`, decoded.
local function head(text, at, limit, work)
    local piece = sub(text, at + 1, at + limit)
    local special = find(piece, '["\\\128-\255]')
    if not special then return piece end
    if byte(piece, special) == QUOTE then return sub(piece, 1, special - 1) end
    local stop = string_end(text, at, work)
    if not stop then return "" end
    piece = unescape(sub(text, at + 1, math.min(stop - 2, at + limit * BYTES_PER_CHARACTER)))
    if find(piece, "^[\128-\191]") then return sub(piece, 1, limit) end -- no UTF-8
    local behind = utf8.offset(piece, limit + 1)
    return behind and sub(piece, 1, behind - 1) or piece
end

-- The first characters of a content: a string, or a list of parts whose texts are joined.
local function content_head(text, at, limit, work)
    if byte(text, at) == QUOTE then return head(text, at, limit, work) end
    if byte(text, at) ~= OPEN_LIST then return "" end
    local joined = ""
    at = skip(text, at + 1)
    while at and byte(text, at) == OPEN and limit > 0 do
        local part = member(text, at, "text", work)
        if part and byte(text, part) == QUOTE then
            local piece = head(text, part, limit, work)
            joined = joined .. piece
            limit = limit - (utf8.len(piece) or #piece)
        end
        at = next_one(text, at, work)
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
        at = next_one(text, at, work)
    end
    return ""
end

local function opening(text, field, limit)
    local work = {left = WORK}
    local at = member(text, skip(text, 1), field, work)
    local code = at and byte(text, at)
    if code == QUOTE and field ~= "messages" then return head(text, at, limit, work) end
    if code ~= OPEN_LIST then return "" end
    if field ~= "prompt" then return first_user_head(text, at, limit, work) end
    at = skip(text, at + 1)
    return byte(text, at) == QUOTE and head(text, at, limit, work) or ""
end

local rings = {}              -- backend -> what its ring text says, and first choices

local function ring_of(txn, backend, text)
    local ring = rings[backend]
    if ring and ring.text == text then return ring end
    local words = gmatch(text, "[^,]+")
    ring = {text = text, percent = tonumber(words()), characters = tonumber(words()), endpoints = {}, seeds = {}, first = {}}
    for endpoint in words do
        ring.endpoints[#ring.endpoints + 1] = endpoint
        ring.seeds[#ring.seeds + 1] = txn.c:xxh64(endpoint)
    end
    rings[backend] = ring
    return ring
end

-- The score of an endpoint for a part: all bits of both count.
local function score(seed, part)
    local mixed = (seed ~ (part * 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9
    mixed = (mixed ~ (mixed >> 31)) * 0x94D049BB133111EB
    return mixed ~ (mixed >> 29)
end

local function first_choice(ring, part)
    local best, highest = 1, score(ring.seeds[1], part)
    for number = 2, #ring.seeds do
        local found = score(ring.seeds[number], part)
        if math.ult(highest, found) then best, highest = number, found end
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

local function choose(txn, backend, ring, part)
    local fetch = txn.f
    local bound = (fetch:be_conn(backend) + 1) * ring.percent / (100 * #ring.endpoints)
    local name = ring.endpoints[ring.first[part] or first_choice(ring, part)]
    if fetch:srv_conn(backend .. "/" .. name) <= bound then return name end
    for _, number in ipairs(ranking(ring, part)) do
        name = ring.endpoints[number]
        if fetch:srv_conn(backend .. "/" .. name) <= bound then return name end
    end
    return "" -- others were chosen meanwhile
end

local function endpoint(txn)
    local field = FIELDS[txn.f:path()]
    if not field then return "" end
    local backend = txn:get_var("txn.be")
    local ring = ring_of(txn, backend, txn:get_var("txn.ring"))
    local text = opening(txn.f:req_body(), field, ring.characters)
    if text == "" then return "" end
    return choose(txn, backend, ring, txn.c:xxh64(text) & (PARTS - 1))
end

core.register_fetches("endpoint", endpoint)
