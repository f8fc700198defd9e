(call method: (identifier) @callee arguments: (argument_list (string (string_content) @import))
  (#match? @callee "^require(_relative)?$"))
