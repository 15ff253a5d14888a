/* JSON by jansson, if this build has it, for headers of safetensors files and indexes of
 * checkpoints. */
#ifndef TRAIN_JANSSON_NEEDED_H
#define TRAIN_JANSSON_NEEDED_H

#include <tutti/tutti.h>

#include <stdbool.h>

/* UNSUPPORTED in a build without jansson. Called before anything is written. */
tutti_status jansson_needed(void);

#endif
