"""PPO as a loop of our own: answers, advantages, updates, and a checkpoint that holds all of it.

trl 1.12's experimental PPOTrainer has one long train() that cannot be stopped or resumed; an unbroken run of ours has
its numbers (tests/cpu/test_ppo.py holds the two side by side).

maths       the equations, on tensors alone
rollout     answers with their log probabilities, values and distances from the reference
scoring     rewards of answers, from token ids where the reward model shares the tokenizer
models      reward, value and reference models, and what is refused
checkpoint  everything that a resumed run needs to be the run that was never stopped
loop        the order of it all
build       from a job to the loop
"""
