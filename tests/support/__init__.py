"""What tests share: real servers, and what adds up their reports."""
