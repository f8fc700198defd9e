(import_declaration (scoped_identifier) @import)
