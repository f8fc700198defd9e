/** The page of `sessiontree bench view`. */

import { mountRuns } from "./run_view.js";
import { HttpRuns } from "./source_runs.js";

mountRuns(document.body, new HttpRuns());
