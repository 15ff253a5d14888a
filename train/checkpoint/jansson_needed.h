/* JSON by jansson, where this build has it: what the headers of safetensors files and the indexes
 * of checkpoints share. */
#ifndef TRAIN_JANSSON_NEEDED_H
#define TRAIN_JANSSON_NEEDED_H

#include <tutti/tutti.h>

#include <stdbool.h>

/* UNSUPPORTED, with a message, in a build without jansson: asked before anything is written. */
tutti_status jansson_needed(void);

#endif
