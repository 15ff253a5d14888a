/* tutti-plan: prints, checks, explains and simulates plans. */
#include "arguments.h"

int main(int argc, char **argv)
{
	static int (*const verbs[])(const struct arguments *) = {show, check, explain, simulate};
	struct arguments arguments;
	int code = arguments_parse(&arguments, argc, argv);

	return code >= 0 ? code : verbs[arguments.verb](&arguments);
}
