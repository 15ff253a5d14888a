/* Tutti behind the calls of tutti.h: what it can measure, and its name. */
#include "library.h"

#include <stdio.h>

const char *library_name(void)
{
	static char name[128];

	snprintf(name, sizeof name, "Tutti %s (%s)", tutti_version(), tutti_revision());
	return name;
}

const char *library_refuses(const struct request *request)
{
	(void)request;
	return NULL;
}
