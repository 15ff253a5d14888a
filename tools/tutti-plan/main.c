/* tutti-plan: prints, checks, explains and simulates plans, and schedules of pipelines. */
#include "arguments.h"

#include "core/program/output.h"

int main(int argc, char **argv)
{
	static int (*const verbs[])(const struct arguments *) = {
		plan_show, plan_check, plan_explain, plan_simulate, plan_pipeline};
	struct arguments arguments;
	int code;

	if (!output_open())
		return 1;
	code = arguments_parse(&arguments, argc, argv);
	return output_end(code >= 0 ? code : verbs[arguments.verb](&arguments), 1);
}
