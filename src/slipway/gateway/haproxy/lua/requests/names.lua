-- Encodes names of keys and subjects for commands and their answers. All but a few characters become %XX, so that none
-- of them separates words, fields or commands.

local names = {}

function names.encode(name)
    return (name:gsub("[^A-Za-z0-9._-]", function(character) return ("%%%02X"):format(character:byte()) end))
end

function names.decode(text)
    return (text:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

return names
