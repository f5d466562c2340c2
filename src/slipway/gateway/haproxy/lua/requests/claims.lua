-- Registers the fetch lua.subject, which returns a token's subject if its claim is a string. HAProxy would write
-- different large numbers in the same way.
--
-- Loaded once in each thread.

core.register_fetches("subject", function(txn)
    local claim = txn:get_var("txn.claim")
    return type(claim) == "string" and claim or ""
end)
