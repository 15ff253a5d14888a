/* A fault that a check has found. */
#ifndef TUTTI_PLAN_FINDING_H
#define TUTTI_PLAN_FINDING_H

#include <stdbool.h>

/* The first thing that is wrong, as a message that names rank and step. */
struct finding {
	char text[1024];
};

/* Writes the message and returns false. */
bool finding_says(struct finding *finding, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
