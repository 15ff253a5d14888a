/* Which name of several somebody meant who typed another word: for "did you mean". This folder
 * includes nothing of ours, so that tuttirun has it without the library. */
#ifndef CORE_WORDS_NEAREST_H
#define CORE_WORDS_NEAREST_H

#include "core/words/export.h"

#include <stddef.h>

/* The nearest name of those that were tried. */
struct nearest {
	const char *typed;
	size_t bytes;
	int limit;        /* a name that is so far away, or further, is not meant */
	const char *name; /* NULL: none is near                                   */
};

/* typed has so many bytes. Of three letters one may be wrong. */
struct nearest nearest_to(const char *typed, size_t bytes) TUTTI_PRIVATE(nearest_to);
/* Keeps the name if it is nearer than those before. It must stay until nearest.name is used. */
void nearest_try(struct nearest *nearest, const char *name) TUTTI_PRIVATE(nearest_try);
/* How many letters of typed must be changed, inserted, removed or swapped with their neighbour to
 * make name of it, in capitals or not; 1 for three letters or more that name begins with. INT_MAX:
 * one of them has more than 64 bytes. */
int nearest_distance(const char *typed, size_t bytes, const char *name);

#endif
