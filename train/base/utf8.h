/* Is a name UTF-8? Files that others read hold nothing else. */
#ifndef TRAIN_UTF8_H
#define TRAIN_UTF8_H

#include <stdbool.h>

bool utf8_is_valid(const char *text);

#endif
