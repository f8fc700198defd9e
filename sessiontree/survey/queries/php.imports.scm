(namespace_use_clause [(qualified_name) (name)] @import)
