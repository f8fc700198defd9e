(import_spec path: (_) @import)
(source_file (function_declaration name: (identifier) @public (#match? @public "^[A-Z]")))
(source_file (type_declaration (type_spec name: (type_identifier) @public (#match? @public "^[A-Z]"))))
(source_file (const_declaration (const_spec name: (identifier) @public (#match? @public "^[A-Z]"))))
