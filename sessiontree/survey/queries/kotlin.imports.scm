(import (qualified_identifier) @import)
