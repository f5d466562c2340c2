-- Names of keys and subjects in commands and their answers: all but a few characters are written as %XX, so that none of them
-- separates words, fields or commands.

local names = {}

function names.encode(name)
    return (name:gsub("[^A-Za-z0-9._-]", function(character) return ("%%%02X"):format(character:byte()) end))
end

function names.decode(text)
    return (text:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

return names
