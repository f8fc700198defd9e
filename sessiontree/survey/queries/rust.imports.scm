(use_declaration argument: (_) @import)
(use_declaration (visibility_modifier) @_how argument: (_) @public (#eq? @_how "pub"))
(source_file (_ (visibility_modifier) @_how name: (_) @public (#eq? @_how "pub")))
