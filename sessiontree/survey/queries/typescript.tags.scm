(program (lexical_declaration (variable_declarator name: (identifier) @name value: (_))) @definition.constant)
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name value: (_))))
  @definition.constant)

(type_alias_declaration name: (type_identifier) @name) @definition.type
(enum_declaration name: (identifier) @name) @definition.enum
(public_field_definition name: (property_identifier) @name value: (arrow_function)) @definition.method
