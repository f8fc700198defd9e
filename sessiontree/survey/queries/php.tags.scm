(function_call_expression function: (name) @name) @reference.call
