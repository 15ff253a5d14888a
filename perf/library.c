#include "library.h"

#include <stdio.h>

const char *library_name(void)
{
	static char name[64];

	snprintf(name, sizeof name, "Tutti %s", tutti_version());
	return name;
}

const char *library_refuses(const struct request *request)
{
	(void)request;
	return NULL;
}
