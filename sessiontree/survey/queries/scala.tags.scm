(call_expression function: (field_expression field: (identifier) @name)) @reference.call
