(using_directive [(qualified_name) (identifier)] @import)
