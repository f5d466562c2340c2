-- Asks the control process whether a token of a service account is still valid (reviews.py), and remembers what it said for as
-- long as it said. HAProxy has verified the token before. Sets txn.reviewed to whether it is valid; where that cannot be found
-- out, the request is answered with 503.
--
-- Loaded once in each thread, which remembers for itself.

local refusals = require("refusals")

local path = ...

local MOST = 4096             -- answers that are remembered; then those that are older than as many later ones are forgotten
local MOST_ASKING = 256       -- requests that may wait for an answer
local SECONDS = 5             -- for one answer

local recent, older, count = {}, {}, 0
local asking = {}             -- second -> requests that began to ask in it; one whose client leaves runs no further

local function remembered(digest)
    local found = recent[digest] or older[digest]
    return found and found.ends > core.now().sec and found or nil
end

local function remember(digest, valid, seconds)
    if count >= MOST then recent, older, count = {}, recent, 0 end
    local found = {valid = valid, ends = core.now().sec + seconds}
    recent[digest], count = found, count + 1
    return found
end

-- What the control process says of a token: whether it is valid, and for how many seconds that may be believed. Nothing where
-- it does not know.
local function ask(token)
    local socket, text = core.tcp(), nil
    socket:settimeout(SECONDS)
    if socket:connect(path) and socket:send("POST /review HTTP/1.0\r\nhost: control\r\ncontent-length: " .. #token
        .. "\r\ncontent-type: text/plain\r\n\r\n" .. token) then
        text = socket:receive("*a")
    end
    socket:close()
    local valid, seconds = (text or ""):match("^HTTP/1%.[01] 200 .-\r\n\r\n([01]) (%d+)$")
    return valid == "1", tonumber(seconds)
end

-- Requests that wait for an answer. Those that began longer ago than an answer can take are gone.
local function waiting(now)
    local sum = 0
    for second, number in pairs(asking) do
        if second + 3 * SECONDS < now then asking[second] = nil else sum = sum + number end
    end
    return sum
end

core.register_action("review", {"http-req"}, function(txn)
    local digest = txn:get_var("txn.digest")
    local found, began = remembered(digest), core.now().sec
    if not found and waiting(began) < MOST_ASKING then
        asking[began] = (asking[began] or 0) + 1
        local done, valid, seconds = pcall(ask, txn:get_var("txn.jwt"))
        if asking[began] then asking[began] = asking[began] - 1 end
        if done and seconds then found = remember(digest, valid, seconds) end
    end
    if not found then return refusals.answer(txn, "unreviewed") end
    txn:set_var("txn.reviewed", found.valid)
end)
