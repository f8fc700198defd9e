/** The page of one tree of `sessiontree serve`: its path names the tree. */

import { mountTree } from "./session_tree.js";
import { HttpSource } from "./source_http.js";

mountTree(document.body, new HttpSource(location.pathname.replace(/\/+$/, "")));
