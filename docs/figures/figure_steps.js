// What shows the steps of a figure.

import { Computed } from "regard/computed.js";
import { View } from "regard/view.js";
import "regard/workflow.js";

export const steps = { Computed, View };
