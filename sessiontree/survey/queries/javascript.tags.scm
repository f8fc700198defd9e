(program (lexical_declaration (variable_declarator name: (identifier) @name value: (_))) @definition.constant)
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name value: (_))))
  @definition.constant)
