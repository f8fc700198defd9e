(command name: (command_name) @callee argument: (_) @import (#match? @callee "^(source|[.])$"))
