(call_expression function: (identifier) @name) @reference.call
