/* Checks the plans of all ranks of one call together: whether they end, and end with what the collective
 * promises, whatever the order in which steps happen. Symbolically; no byte is moved. */
#ifndef TUTTI_PLAN_CHECK_H
#define TUTTI_PLAN_CHECK_H

#include "finding.h"
#include "look.h"

/* True: nothing is wrong. The four parts in the order in which check_plans takes them; each relies on what
 * the ones before have found right. */
bool check_plans(const struct plan_set *set, struct finding *finding);
bool check_messages(const struct plan_set *set, struct finding *finding);
bool check_order(const struct plan_set *set, struct finding *finding);
/* Executes all ranks. rendezvous: a send ends when its receive has been posted, and is read then; else at
 * once. */
bool check_execution(const struct plan_set *set, bool rendezvous, struct finding *finding);

#endif
