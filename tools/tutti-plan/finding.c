/* The message of a finding. */
#include "finding.h"

#include <stdarg.h>
#include <stdio.h>

bool finding_says(struct finding *f, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(f->text, sizeof f->text, format, args);
	va_end(args);
	return false;
}
