-- Functions for JSON text that several scripts use. Keeps no state.

local find, match, sub = string.find, string.match, string.sub
local concat, tonumber = table.concat, tonumber

local SPACE = "^[ \t\r\n]*"

local json = {
    PLAIN_ESCAPE = {['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t"},
}

-- Returns the index of the first character from `at` that is not a space.
function json.skip(text, at)
    local _, last = find(text, SPACE, at)
    return last + 1
end

-- Decodes the escapes of a string without its quotes. Lone surrogates become U+FFFD. An incomplete escape at the end is
-- omitted.
function json.unescape(text)
    local parts, from = {}, 1
    while true do
        local stop = find(text, "\\", from, true)
        parts[#parts + 1] = sub(text, from, stop and stop - 1)
        if not stop then return concat(parts) end
        local kind = sub(text, stop + 1, stop + 1)
        if kind ~= "u" then
            parts[#parts + 1] = json.PLAIN_ESCAPE[kind]
            from = stop + 2
        else
            local code = tonumber(match(text, "^%x%x%x%x", stop + 2) or "", 16)
            if not code then return concat(parts) end
            from = stop + 6
            local low = code >= 0xD800 and code < 0xDC00 and match(text, "^\\u([dD][c-fC-F]%x%x)", from)
            if low then
                code = 0x10000 + (code - 0xD800) * 0x400 + (tonumber(low, 16) - 0xDC00)
                from = from + 6
            elseif code >= 0xD800 and code < 0xE000 then
                code = 0xFFFD
            end
            parts[#parts + 1] = utf8.char(code)
        end
    end
end

return json
