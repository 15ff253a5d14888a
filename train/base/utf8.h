/* Checks that a name is UTF-8, as files of names require. */
#ifndef TRAIN_UTF8_H
#define TRAIN_UTF8_H

#include <stdbool.h>

bool utf8_is_valid(const char *text);

#endif
