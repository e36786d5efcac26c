if not left then
    return answer
end
